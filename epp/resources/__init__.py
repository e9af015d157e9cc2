"""Custom resources that change how requests are treated: objectives, rewrites, and objects that plugins follow."""
