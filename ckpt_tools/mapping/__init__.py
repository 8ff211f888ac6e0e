"""Names and shapes only: renaming rules, what a name is, and what each framework does to each kind of layer."""
