"""
From a body to what it asks for: model, prompts, token ids.

Here: which API a path belongs to (`reading`), the APIs people send (`openai`), chat templates (`template`), one model's
tokenizer (`vocabulary`), and the budget that keeps a slow one off the pick path (`tokens`).
Not here: hashes of the tokens (`picker.core.blocks`), what a refusal looks like on the wire (`picker.serving`).
"""
