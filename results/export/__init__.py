"""What leaves the program: a table as asked for, the report page, the folder of `goalgrid export`."""
