"""
A simulated vLLM: everything an engine shows to a gateway and to a picker, and nothing that needs a GPU.

Here: its own tokenising (`tokens`, `chat`), a paged prefix cache (`blocks`), continuous batching (`scheduler`), the KV
events in vLLM's encodings over ZMQ (`dialects`, `publisher`), the metrics, the OpenAI API.

Not here: anything of the picker. The engine shares no code with what it is used to check, so that both can be wrong
only by their own mistakes.
"""
