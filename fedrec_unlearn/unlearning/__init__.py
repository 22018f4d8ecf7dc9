"""Attribute unlearning: private rows from which an attacker cannot tell what a user is."""
