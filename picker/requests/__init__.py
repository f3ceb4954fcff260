"""
From a body to what it asks for: model, prompts, token ids.

Here: which API a path belongs to (`reading`), the APIs people send (`openai`), chat templates (`template`), what turns
text into ids (`coder`, `ranks`) and where that may be cut and cached (`pieces`, `vocabulary`), threads that take turns
(`turns`), an engine asked instead (`engine`), and the budget that keeps a slow one off the pick path (`tokens`).
Not here: hashes of the tokens (`picker.core.blocks`), what a refusal looks like on the wire (`picker.serving`).
"""
