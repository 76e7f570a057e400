"""How the authors of a pretrained network call it: derived from the files of its folder, never from class defaults."""
