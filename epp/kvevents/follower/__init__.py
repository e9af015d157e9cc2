"""The process that follows the engines' KV events and hands the picker what has changed."""
