"""The checked document becomes plugins: each one is made once and bound to what it reads."""
