"""Criteria of an operator's own: found by name, asked on the pick path, and kept from harming it.

Here: loading by entry point, asking, `labels` as an example, and the kit that holds a criterion to its contract
(`picker.criteria.testing`). Not here: the seam itself (`picker.core.criteria`), prices, choices.
"""
