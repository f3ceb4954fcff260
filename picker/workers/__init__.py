"""The registry of workers and what they report of themselves.

Here: scraping of `/metrics` and its reading in the engines' names, old and new. Not here: bookings, prices.
"""
