"""What changes a runs folder without training: trials taken from another folder, and trials moved to the trash."""
