"""What runs inside the sandboxes: standard library only, imported without headsieve.

`program` runs model-written code and answers requests; `checker` runs the tests and puts the
requests. They share nothing but two pipes and the plain values of `wire`.
"""
