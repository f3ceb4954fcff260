"""From a body to what it asks for: model, prompts, token ids.

Here: the APIs people send (`openai`), tokenizers and chat templates (`tokens`), the budget that keeps a slow one off the pick path.
Not here: hashes of the tokens (`picker.core.blocks`), what a refusal looks like on the wire (`picker.serving`).
"""
