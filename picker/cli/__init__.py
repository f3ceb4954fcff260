"""The command line: reads flags, starts the parts, prints for people.
"""
