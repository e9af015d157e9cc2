"""What is wrong with an installation: objects and pages are read, and pure rules judge them."""
