"""The OpenAPI schema: what each operation takes, answers and refuses, in words.

Each app describes its own operations in its `api/schema.py`, named in the settings' `API_DESCRIPTIONS`. Views
stay free of it: `auto.py` finds an operation's description by the name that its view declares.
"""
