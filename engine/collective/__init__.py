"""Several pods at once: the search for victims, plans of gangs, accounts of quotas.

Policies say who, in which order and at what cost (`dsl.collective`). Evicts and binds nobody.
"""
