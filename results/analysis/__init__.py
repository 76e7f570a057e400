"""What a grid's scores show: which axis matters, what is best, how sure that is; in words and as marks in tables."""
