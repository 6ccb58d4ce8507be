"""OpenAI's API as a second way to sessions: an agent is a model, a run is an answer."""
