"""The part that decides: values in, values out.

Here: tokens to chained hashes (`blocks`), who holds which prefix (`index`), what each worker carries (`load`), what a
worker costs a request (`cost`), and the choice with its reasons (`choose`).

Not here: any input or output, any clock (`now` is an argument), any event loop, any log line.
"""
