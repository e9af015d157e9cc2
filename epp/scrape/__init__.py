"""What the engines say of themselves: their metrics pages, read often and cheaply."""

from epp.scrape.error import ScrapeError
from epp.scrape.pace import Pace
from epp.scrape.scraper import Scraper

__all__ = ["Pace", "ScrapeError", "Scraper"]
