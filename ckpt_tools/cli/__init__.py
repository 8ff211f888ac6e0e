"""The command line: the only part that prints, and the only importer of typer and rich."""
