"""gRPC over the HTTP/2 of `picker.serving.http2`, on asyncio: no task and no coroutine for a stream."""
