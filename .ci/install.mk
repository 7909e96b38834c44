# `make install`, `make uninstall`; `make dist`, `make deb`: archives that are the same bytes for the same commit and packages.
PREFIX ?= /usr/local
DESTDIR ?=
PAPERS := $(BUILD)/papers
DIST := $(BUILD)/dist
NEED_DEB := dpkg-dev
# Of the package, as Debian's tools take it from the environment: who answers for it.
DEBFULLNAME ?= Convoy maintainers
DEBEMAIL ?= maintainers@convoy.example.org
# Made here, and where it goes under PREFIX.
INSTALLED = $(BUILD)/convoy:bin/convoy $(PAPERS)/convoy.1:share/man/man1/convoy.1 \
  $(PAPERS)/convoy.bash:share/bash-completion/completions/convoy $(PAPERS)/_convoy:share/zsh/site-functions/_convoy \
  $(PAPERS)/convoy.fish:share/fish/vendor_completions.d/convoy.fish assets/alice.txt:share/convoy/alice.txt \
  LICENSE:share/doc/convoy/LICENSE NOTICE:share/doc/convoy/NOTICE README.md:share/doc/convoy/README.md CHANGELOG.md:share/doc/convoy/CHANGELOG.md

.PHONY: papers install uninstall dist deb sbom
papers: $(BUILD)/convoy
	@mkdir -p $(PAPERS)
	@$< help man >$(PAPERS)/convoy.1
	@$< help bash >$(PAPERS)/convoy.bash
	@$< help zsh >$(PAPERS)/_convoy
	@$< help fish >$(PAPERS)/convoy.fish

install: papers
	@for i in $(INSTALLED); do to="$(DESTDIR)$(PREFIX)/$${i#*:}"; mkdir -p "$${to%/*}"; \
	  install -m $$(case $$i in *:bin/*) echo 755 ;; *) echo 644 ;; esac) "$${i%%:*}" "$$to" || exit; done
	@echo 'installed $(DESTDIR)$(PREFIX)/bin/convoy, its man page and completions; make uninstall removes them'

uninstall:
	@for i in $(INSTALLED); do rm -f "$(DESTDIR)$(PREFIX)/$${i#*:}"; done
	@rmdir "$(DESTDIR)$(PREFIX)/share/doc/convoy" "$(DESTDIR)$(PREFIX)/share/convoy" 2>/dev/null || :

# Checksums of all that is in DIST, the release file included; with SIGN=KEY signed by gpg (SHA256SUMS.asc).
SIGN ?=
SUMS = { [ ! -x $(RELEASE)/convoy ] || cp $(RELEASE)/convoy $(DIST)/convoy-$(VERSION)-linux-$$(uname -m)$(CUDA_NAME:%=-%); } && cd $(DIST) && \
  rm -f SHA256SUMS SHA256SUMS.asc && sha256sum -- * >../SHA256SUMS && mv ../SHA256SUMS . \
  $(if $(SIGN),&& gpg --batch --yes --local-user '$(SIGN)' --armor --detach-sign --output SHA256SUMS.asc SHA256SUMS)

# What is committed, not what lies here.
dist: sbom
	@git archive --prefix=convoy-$(VERSION)/ --format=tar HEAD | gzip -n9 >$(DIST)/convoy-$(VERSION).tar.gz
	@$(SUMS)
	@ls -l $(DIST)

sbom: $(BUILD)/convoy
	@mkdir -p $(DIST)
	@$$([ -x $(RELEASE)/convoy ] && echo $(RELEASE)/convoy || echo $<) version | .ci/sbom '$(word 3,$(WHEN))' >$(DIST)/convoy-$(VERSION).spdx.json

# From the ordinary build: the libraries are those of the system, which keeps them safe.
deb: papers
	@sh .ci/need $(NEED_DEB)
	@mkdir -p $(DIST)
	@SOURCE_DATE_EPOCH='$(word 3,$(WHEN))' .ci/deb $(VERSION) $(DIST) '$(DEBFULLNAME) <$(DEBEMAIL)>' '$(INSTALLED)'
	@$(SUMS)
