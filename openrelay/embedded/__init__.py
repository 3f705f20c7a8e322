"""OpenRelay on one machine: its own PostgreSQL and Valkey, and a supervisor for every process.

Nothing here needs Django, so that it can start what Django needs.
"""
