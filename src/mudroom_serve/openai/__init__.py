"""OpenAI's API as a second way to use sessions: an agent is a model, a run is an answer."""
