"""Chats: services whose threads are conversations, such as GitHub, Slack and Telegram."""
