"""What leaves the program: a table as asked for and its check, the report page, the folder of `goalgrid export`."""
