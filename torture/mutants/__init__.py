"""`make mutants`: change the product a little, again and again; a test should fail each time.

mutmut 3 leaves out what a module does when it is imported, decorated functions and the bodies of dataclasses, which is
a third of the mutants here; cosmic-ray begins a new run of pytest for each mutant, which takes seconds. This one
collects the tests once and forks for each mutant. The child exchanges the code of one function, and runs only the
tests that executed the changed lines, the fastest first, until one fails. A change outside of functions is made while
a child that has not imported the product does so.
"""
