"""A chat apart from how it is drawn: questions and answers, versions, slash commands, parts of the prompt."""
