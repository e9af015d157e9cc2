"""From a request to its pick, and to the pick's end: no other room decides where a request goes."""
