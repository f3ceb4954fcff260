"""Measures what the project promises: each bench is one promise with its budget, its conditions and its numbers.

Here: how time is taken on a machine that others use too (`timing`), what a budget is (`budget`), and the benches:
`index` (the prefix index by itself) and `quality` (published traces through simulated engines in virtual time).

Not here: flags and tables (`picker.cli.benches`), and nothing that the product imports.
"""
