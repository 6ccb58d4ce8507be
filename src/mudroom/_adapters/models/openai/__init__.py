"""The two wires of OpenAI: Chat Completions (`chat`) and Responses (`responses`)."""
