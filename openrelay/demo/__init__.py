"""The demo: a fleet to try OpenRelay on, and a tour of it."""
