"""Delivery of webhooks: which addresses may be reached, and what is sent when. Needs the extra `webhooks`."""
