"""What scores show: which axis matters, what is best, how sure it is, in words and as marks; whether two runs agree."""
