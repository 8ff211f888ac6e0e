"""Pickles, read symbolically: the only code that knows opcodes. Nothing is imported, called or built here."""
