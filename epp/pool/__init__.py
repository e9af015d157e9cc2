"""The endpoints, their numbers and the requests in flight: all of them change in the same step as the pick."""
