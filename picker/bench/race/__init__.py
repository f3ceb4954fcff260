"""How far the race between choosing and booking spoils balance: each mode, with 1 to 8 replicas.

`world`: the requests, equal for every mode and number of replicas; `log`: what was chosen, judged against what was
truly under way; `virtual`: replicas in virtual time whose views are as late as was measured; `real`: replicas in
processes of their own on a real plane; `rows`: runs of one kind into one row, pairs of seeds into a verdict;
`threshold`: from where on `atomic` pays; `run`: the whole, with its budgets; `page`: its tables.
"""
