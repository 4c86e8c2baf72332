raise SystemExit("emm has imported this module")
