"""
From a body to what it asks for: model, prompts, token ids.

Here: which API a path belongs to (`paths`) and what is read or refused (`reading`); the APIs people send (`openai`,
`responses`, `anthropic`, `generate`, forms in `multipart`), what they share (`content`), media (`media`) and the
standing of a request (`standing`); chat templates (`template`) in their `sandbox`, and the JSON in them (`writing`);
what turns text into ids (`coder`, `ranks`), where that may be cut and cached (`pieces`, `words`, `vocabulary`) and what
is known of texts that begin alike (`recall`); a request's prompts on the loop or in steps (`tokenising`), threads that
take turns (`turns`), an engine asked instead (`engine`), and the budget that keeps a slow one off the pick path
(`tokens`); rules that give a request another model (`rewriting`, `rewritefile`) and what that makes of its body
(`renaming`).
Not here: hashes of the tokens (`picker.prompts`), what a refusal looks like on the wire (`picker.serving`).
"""
