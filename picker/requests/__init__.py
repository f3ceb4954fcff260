"""
From a body to what it asks for: model, prompts, token ids.

Here: which API a path belongs to (`paths`) and what is read or refused (`reading`); the APIs people send (`openai`,
`responses`, `anthropic`, `generate`, forms in `multipart`), what they share (`content`), media (`media`) and the
standing of a request (`standing`); chat templates (`template`), what turns text into ids (`coder`, `ranks`) and where
that may be cut and cached (`pieces`, `vocabulary`), threads that take turns (`turns`), an engine asked instead
(`engine`), and the budget that keeps a slow one off the pick path (`tokens`); rules that give a request another model
(`rewriting`, `rewritefile`) and what that makes of its body (`renaming`).
Not here: hashes of the tokens (`picker.prompts`), what a refusal looks like on the wire (`picker.serving`).
"""
