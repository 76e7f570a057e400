"""What leaves the program: a table as it was asked for, the report page, and the folder of `goalgrid export`."""
