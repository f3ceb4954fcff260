"""What of the chart is made by program."""
