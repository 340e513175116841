# The scripts do the work; this is for who types make.
.PHONY: test verbs-test
test:
	scripts/test
verbs-test:
	scripts/verbs-test
