"""The server's side of HTTP/2 without input or output: bytes in, bytes out, calls to handlers in between.

`picker.serving.http2.connection` is where to begin reading. It follows RFC 9113; the numbers in comments are
its sections.
"""
