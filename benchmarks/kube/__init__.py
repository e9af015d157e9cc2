"""What following a cluster costs the picker."""
