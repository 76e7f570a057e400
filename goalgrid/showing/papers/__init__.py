"""What users read of the papers beside their tables: equations and claims."""
