"""What is said of a grid: its status, its tables, its report."""
