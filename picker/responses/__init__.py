"""
From a response's pieces to what it tells, and back to what the client should read.

Here: token usage as engines tell it (`usage`), where a piece's JSON begins and ends in event streams (`usage`,
`naming`), the client's model name put back into an answer (`naming`), and both as one reading (`reading`).
Not here: which model a request goes to (`picker.requests.rewriting`), how pieces travel (`picker.serving`).
"""
